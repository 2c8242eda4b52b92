"""The code that runs in a Flower app's own process, with flwr and without tolfl: `run.py` is started by its path."""
