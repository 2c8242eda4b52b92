"""Driver 1: virtual time. The protocol is played first, training follows as one batch over all devices.

`timeline` plays the devices' events in virtual time and yields each closed round as a `deferred` state;
`batch_trainer` computes what was deferred; `simulation` puts the two together, for many repetitions in lock-step.
"""
