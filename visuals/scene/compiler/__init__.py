"""Scenes compiled from what a kernel did: a recording of its threads, and a View that says what of it is on the stage."""
