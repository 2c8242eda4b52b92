"""Scikit-learn estimator, scoring, thresholds, saved models, export."""
