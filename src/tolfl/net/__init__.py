"""Driver 2: one process per device, one TLS connection per pair, failure detector, enrolment, launcher."""
