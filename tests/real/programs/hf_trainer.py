# A classifier of short sequences, trained and judged by Hugging Face's Trainer.
# result = eval_accuracy
# ddp = -n 2
# tolerance = 0.05
# search = --grid learning_rate=0.0005,0.005 --metric eval_loss --mode min
# needs = torch, transformers, accelerate
# %%
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Sequences(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, 50, (n, 12), generator=generator)
        self.labels = (self.ids[:, 0] > 25).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": self.labels[index],
        }


train_dataset, eval_dataset = Sequences(128, 0), Sequences(64, 1)


def compute_metrics(prediction):
    predicted = np.argmax(prediction.predictions, axis=-1)
    return {"accuracy": float((predicted == prediction.label_ids).mean())}


# %% train
learning_rate = 5e-3
set_seed(0)
config = BertConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    output_dir="bert-out",
    num_train_epochs=3,
    per_device_train_batch_size=16 // int(os.environ.get("WORLD_SIZE", 1)),
    learning_rate=learning_rate,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=4,
    seed=0,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train_dataset,
    eval_dataset=eval_dataset,
    compute_metrics=compute_metrics,
)
trainer.train()
eval_accuracy = trainer.evaluate()["eval_accuracy"]
