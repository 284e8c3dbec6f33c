"""The transducer loss of speechbrain, forward and backward."""

import sys
from unittest.mock import MagicMock

import torch

sys.modules["torchaudio"] = MagicMock()  # its library is of one build of PyTorch, and the loss needs none of it

from speechbrain.nnet.loss.transducer_loss import TransducerLoss  # noqa: E402

logits = torch.randn(2, 8, 4, 5, device="cuda", requires_grad=True)
targets = torch.ones(2, 3, dtype=torch.int32, device="cuda")
lengths = torch.full((2,), 8, dtype=torch.int32, device="cuda"), torch.full((2,), 3, dtype=torch.int32, device="cuda")
TransducerLoss(blank=0)(logits, targets, *lengths).backward()
