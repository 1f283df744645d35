"""Training dual-encoders, sentence encoders and cross-encoders."""
