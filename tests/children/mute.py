"""A child that starts and never says so."""

import time

time.sleep(3600)
