# A module for Lightning's Trainer, which shares out the loader and logs by itself.
# result = val_loss
# ddp = -n 2
# tolerance = 0.1
# search = --grid lr=0.001,0.1 --metric val_loss --mode min
# needs = torch, lightning
# %%
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


generator = torch.Generator().manual_seed(0)
x = torch.randn(384, 6, generator=generator)
y = x.sum(1, keepdim=True).sin()
train_set, val_set = TensorDataset(x[:256], y[:256]), TensorDataset(x[256:], y[256:])

# %% train
lr = 0.1
L.seed_everything(0)
model = Regression(lr)
trainer = L.Trainer(
    max_epochs=8,
    accelerator="cpu",
    log_every_n_steps=4,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
trainer.fit(model, DataLoader(train_set, batch_size=32, shuffle=True), DataLoader(val_set, 64))
val_loss = float(trainer.callback_metrics["val_loss"])
