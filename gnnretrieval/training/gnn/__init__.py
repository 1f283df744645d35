"""Training GNN-encoders: linear models, masked graph training and joint training; their passage embeddings."""
