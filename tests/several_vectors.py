"""A GNN-encoder whose training kept messages for several vectors a passage."""

import json

import torch

from gnnretrieval.nn.label_messages import Heads, Messages
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json
from gnnretrieval.training.gnn.messages import QUESTION_WEIGHTS, TrainedMessages
from gnnretrieval.training.gnn.model import GNNEncoderModel, open_model

KEPT = Messages(steps=1, mean=0.2, prior=0.1, questions=0.4)


def keep_questions(model: GNNEncoderModel, messages: Messages = KEPT) -> GNNEncoderModel:
    """Write a random head and ``messages`` into a trained model, as training does."""
    width = model.meta["dimension"]
    noise = torch.randn((width, width), generator=torch.Generator().manual_seed(0))
    heads = Heads.shared(torch.eye(width) + 0.1 * noise)
    weights, file = model.path / QUESTION_WEIGHTS, model.path / "meta.json"
    weights.unlink(missing_ok=True)
    TrainedMessages(heads, messages).save(weights)
    meta = {**json.loads(file.read_text()), "questions": messages._asdict()}
    meta["files"] |= {weights.name: sha256_of_file(weights)}
    meta["hash"] = sha256_of_json(meta["files"])
    file.unlink()  # other runs may share it
    file.write_text(json.dumps(meta))
    return open_model(model.path)
