"""The device without I/O: events in, effects out; and the failure injector that wraps it.

Read `history` (what a closed round is), `roles` (who does what), `events`, `messages` and `effects` (the vocabulary),
then `speaker` (what a device can say) and `device` (the rules). The numbers of rules in comments are those of
docs/explanation/protocol.md.
"""
