"""The device without I/O: events in, effects out; and the failure injector that wraps it.

Read `history` (what a closed round is), `membership` (who does what), `messages` and `events` (the vocabulary), then
`round_state` (what a device holds in a round) and `device` (the rules). The numbers of rules in comments are those of
docs/explanation/protocol.md.
"""
