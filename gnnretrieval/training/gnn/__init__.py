"""Training GNN-encoders: the ladder of linear models, masked graph training, joint training; their embeddings."""
