"""What the paper left out: questions that its tables do not answer, asked with the same machinery."""
