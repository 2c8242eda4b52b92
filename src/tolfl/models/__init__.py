"""Models: the autoencoder, trained as one batch over many devices, and any `nn.Module`, one device after the other.

A model's parameters are one flat vector. `Model` is what both kinds offer; `TrainJob` goes in, `Update` comes out.
"""

from tolfl.kernel.jobs import TrainJob, Update
from tolfl.models.autoencoder import Autoencoder
from tolfl.models.model import Model
from tolfl.models.module_model import ModuleModel, seeded
from tolfl.models.settings import TrainSettings

__all__ = ["Autoencoder", "Model", "ModuleModel", "TrainJob", "TrainSettings", "Update", "seeded"]
