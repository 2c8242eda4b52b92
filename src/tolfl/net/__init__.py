"""Driver 2: one process per device, gRPC with mutual TLS, failure detector, enrolment, launcher."""
