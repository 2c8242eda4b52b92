"""The documentation, and the code that generates some of its pages."""
