# A script for torchrun that keeps a snapshot at a relative path and goes on from it.
# result = [final_loss, resumed]
# plain = torchrun --nproc-per-node 2
# search = --ranks-per-trial 2 --grid lr=0.001,0.1 --metric final_loss --mode min
# ddp = -n 2 --bring final_loss,resumed
# tolerance = 1e-6
# needs = torch
# %% train
import os

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

lr = 1e-2


class RandomDataset(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.data = [
            (torch.rand(20, generator=generator), torch.rand(1, generator=generator))
            for _ in range(size)
        ]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        self.model = model
        if os.path.exists(snapshot_path):
            print("Loading snapshot")
            self._load_snapshot(snapshot_path)
        self.model = DDP(self.model)

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path, map_location="cpu")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        print(f"Resuming training from snapshot at epoch {self.epochs_run}")

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        return sum(self._run_batch(*batch) for batch in self.train_data) / len(self.train_data)

    def _save_snapshot(self, epoch):
        snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}
        torch.save(snapshot, self.snapshot_path)
        print(f"Epoch {epoch} | Training snapshot saved at {self.snapshot_path}")

    def train(self, max_epochs):
        loss = None
        for epoch in range(self.epochs_run, max_epochs):
            loss = self._run_epoch(epoch)
            if self.global_rank == 0 and epoch % self.save_every == 0:
                self._save_snapshot(epoch)
        torch.distributed.barrier()
        return loss


def main(total_epochs, save_every=1, batch_size=16, snapshot_path="snapshot.pt"):
    torch.manual_seed(0)
    dataset = RandomDataset(256)
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loader = DataLoader(
        dataset, batch_size=batch_size, shuffle=False, sampler=DistributedSampler(dataset)
    )
    trainer = Trainer(model, loader, optimizer, save_every, snapshot_path)
    loss = trainer.train(total_epochs)
    resumed_from = trainer.epochs_run
    return trainer, loss, resumed_from


if __name__ == "__main__":
    init_process_group(backend="gloo")
    main(total_epochs=2, snapshot_path=f"snapshot-{lr}.pt")
    trainer, final_loss, resumed = main(total_epochs=5, snapshot_path=f"snapshot-{lr}.pt")
    destroy_process_group()
