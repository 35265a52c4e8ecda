"""A decoder in the manner of the transformers library, small enough to think about, with bugs to switch on."""
import sys
import types

import torch
from torch import nn

# Where the library keeps such functions: a module per model, and a table of attention functions.
modeling = types.ModuleType("transformers.models.tiny.modeling_tiny")


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def eager_attention_forward(module, query, key, value, mask, scaling):
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling + mask
    probs = nn.functional.softmax(scores, dim=-1)
    return torch.matmul(probs, value).transpose(1, 2).contiguous(), probs


class Interface:
    """As the library's: entries of its own over those of all."""
    _global_mapping = {"other": eager_attention_forward}

    def __init__(self):
        self._local_mapping = {}

    def __iter__(self):
        return iter({**self._global_mapping, **self._local_mapping})

    def __getitem__(self, key):
        return self._local_mapping[key] if key in self._local_mapping else self._global_mapping[key]


modeling.apply_rotary_pos_emb = apply_rotary_pos_emb
modeling.eager_attention_forward = eager_attention_forward
modeling.ALL_ATTENTION_FUNCTIONS = Interface()
for package in ("transformers", "transformers.models", "transformers.models.tiny"):
    sys.modules.setdefault(package, types.ModuleType(package))
sys.modules[modeling.__name__] = modeling


class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.rand(size) + 0.5), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Rotary(nn.Module):
    def __init__(self, size, theta):
        super().__init__()
        self.size, self.theta = size, theta

    def forward(self, positions):
        frequencies = self.theta ** (-torch.arange(0, self.size, 2).float() / self.size)
        angles = positions[:, None].float() * frequencies[None]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        size, heads, groups, head = config["size"], config["heads"], config["groups"], config["head"]
        self.q_proj = nn.Linear(size, heads * head, bias=False)
        self.k_proj = nn.Linear(size, groups * head, bias=False)
        self.v_proj = nn.Linear(size, groups * head, bias=False)
        self.o_proj = nn.Linear(heads * head, size, bias=False)

    def forward(self, hidden_states, position_embeddings=None, mask=None):
        shape = hidden_states.shape[:-1] + (-1, self.config["head"])
        query = self.q_proj(hidden_states).view(shape).transpose(1, 2)
        key = self.k_proj(hidden_states).view(shape).transpose(1, 2)
        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        query, key = modeling.apply_rotary_pos_emb(query, key, *position_embeddings)
        attend = modeling.eager_attention_forward
        if self.config.get("implementation"):
            attend = modeling.ALL_ATTENTION_FUNCTIONS[self.config["implementation"]]
        context, probs = attend(self, query, key, value, mask, self.config["head"] ** -0.5)
        return self.o_proj(context.reshape(hidden_states.shape[:-1] + (-1,))), probs


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config["size"], config["inner"], bias=False)
        self.up_proj = nn.Linear(config["size"], config["inner"], bias=False)
        self.down_proj = nn.Linear(config["inner"], config["size"], bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm, self.post_attention_layernorm = Norm(config["size"]), Norm(config["size"])

    def forward(self, hidden_states, position_embeddings=None, mask=None):
        hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states),
                                                       position_embeddings=position_embeddings, mask=mask)[0]
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocabulary"], config["size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["layers"]))
        self.norm = Norm(config["size"])
        self.rotary_emb = Rotary(config["head"], config["theta"])

    def forward(self, input_ids):
        hidden = self.embed_tokens(input_ids)
        count = input_ids.shape[1]
        mask = torch.full((count, count), float("-inf")).triu(1).to(hidden.dtype)
        positions = [table.to(hidden.dtype) for table in self.rotary_emb(torch.arange(count))]
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=positions, mask=mask)
        return {"last_hidden_state": self.norm(hidden)}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config["size"], config["vocabulary"], bias=False)

    def forward(self, input_ids=None, labels=None):
        return {"logits": self.lm_head(self.model(input_ids=input_ids)["last_hidden_state"])}

    def generate(self, ids, count):
        for _ in range(count):
            logits = self(input_ids=ids)["logits"]
            ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
        return ids


def make(**changes):
    config = dict(size=32, heads=4, groups=2, head=8, inner=48, vocabulary=50, layers=3, theta=10000.0)
    config.update(changes)
    torch.manual_seed(7)
    model = Model(config).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


IDS = [[3, 14, 15, 9, 26, 5, 35, 8]]
