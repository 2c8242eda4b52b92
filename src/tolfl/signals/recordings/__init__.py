"""Recordings of radio samples in SigMF: written, read as windows of features, drawn."""
