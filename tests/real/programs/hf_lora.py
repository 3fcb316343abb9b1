# A small language model with LoRA from PEFT, trained by Hugging Face's Trainer.
# result = eval_loss
# ddp = -n 2
# tolerance = 0.01
# search = --grid rank_of_lora=1,8 --metric eval_loss --mode min
# needs = torch, transformers, accelerate, peft
# %%
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

generator = torch.Generator().manual_seed(0)
starts = torch.randint(0, 40, (96, 1), generator=generator)
rows = (starts + torch.arange(12)) % 40
train_rows, eval_rows = rows[:64], rows[64:]


def as_dataset(rows):
    return [{"input_ids": row, "labels": row} for row in rows]


def count_trainable(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


# %% train
rank_of_lora = 8
set_seed(0)
config = GPT2Config(
    vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
    attn_pdrop=0, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
base = GPT2LMHeadModel(config)
lora = LoraConfig(
    r=rank_of_lora,
    lora_alpha=16,
    lora_dropout=0.0,
    target_modules=["c_attn", "c_proj", "c_fc"],
    fan_in_fan_out=True,
    task_type="CAUSAL_LM",
)
model = get_peft_model(base, lora)
print(f"{count_trainable(model)} of {sum(p.numel() for p in model.parameters())} parameters")
args = TrainingArguments(
    output_dir="lora-out",
    num_train_epochs=4,
    per_device_train_batch_size=8 // int(os.environ.get("WORLD_SIZE", 1)),
    learning_rate=5e-3,
    logging_steps=8,
    eval_strategy="epoch",
    save_strategy="no",
    seed=0,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=as_dataset(train_rows),
    eval_dataset=as_dataset(eval_rows),
)
trainer.train()
eval_loss = trainer.evaluate()["eval_loss"]
