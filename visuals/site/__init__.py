"""The static site: the pages of the app, recorded as data and drawn by a browser without a server.

host.py runs the page scripts and records what they draw, crawl.py says at which addresses, files.py writes the records
under names of their content, and the scripts of this folder draw them.
"""
