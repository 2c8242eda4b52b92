"""Flower apps, unchanged, as learners: each in a process and an environment of its own, its strategy on every device.

`app_folder` reads the configuration of an app, `app_process` calls its process, `flower_learner` is the learner.
What is below `inside` runs in the app's environment and imports flwr; it imports nothing of tolfl, nor tolfl it.
"""
