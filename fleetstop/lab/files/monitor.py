"""A decoy: it only names the trainer's script on its command line."""

import time

while True:
    time.sleep(3600)
