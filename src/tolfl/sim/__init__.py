"""Driver 1: virtual time. The protocol is played with promises, training follows as one batch over all devices.

`timeline` plays the devices' events in virtual time and yields each closed round as a promise; `workshop` trains what
was promised; `run` puts the two together, for many repetitions in lock-step.
"""
