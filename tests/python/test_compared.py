"""Traces of a small model that the program compares: what lies between modules, planted bugs, ranks, steps."""
import strict
import tsleuth
from support import HAVE_TORCH, TorchCase, needs_program, needs_torch
from tsleuth.session import ACTIVE

if HAVE_TORCH:
    import torch
    from torch import nn


@needs_torch
@needs_program
class Compared(TorchCase):
    def traced(self, name, **changes):
        import tiny_model
        options = changes.pop("options", {})
        change = changes.pop("change", None)
        model = tiny_model.make(**changes)
        if change:
            change(model)
        path = self.folder / f"{name}.safetensors"
        with tsleuth.capture(model, path, functions=True, **options), torch.no_grad():
            model(input_ids=torch.tensor(tiny_model.IDS))
        return path

    def test_names_of_functions(self):
        tensors, _ = strict.load(self.traced("a"))
        names = [name for name in tensors if "layers.1.self_attn" in name]
        self.assertEqual(names, ["model.layers.1.self_attn." + name for name in (
            "q_proj", "k_proj", "v_proj", "q_rope", "k_rope", "attn_scores_masked", "attn_probs", "attn_context",
            "o_proj", "0", "1")])
        names = [name for name in tensors if "layers.1" in name and "self_attn" not in name]
        self.assertEqual(names, ["model.layers.1" + name for name in (
            ".input_layernorm", ".attn_residual", ".post_attention_layernorm", ".mlp.gate_proj", ".mlp.act_fn",
            ".mlp.up_proj", ".mlp.intermediate", ".mlp.down_proj", ".mlp", "")])
        self.assertEqual(list(tensors)[-2:], ["lm_head", "logits"])
        self.assertIn("model.rotary_emb.0", tensors)

    def test_norms_without_a_sum_before_them(self):
        """Of attention's own output (olmo2), and of a layer with parallel branches (gpt_neox)."""
        def after(model):
            model.model.layers[1].post_feedforward_layernorm = nn.Identity()

        def parallel(model):
            model.model.layers[1].use_parallel_residual = True

        for change in (after, parallel):
            names = list(strict.load(self.traced(change.__name__, change=change))[0])
            self.assertNotIn("model.layers.1.attn_residual", names)
            self.assertIn("model.layers.0.attn_residual", names)

    def test_attention_without_a_function(self):
        class OldAttention(nn.Module):
            def forward(self, x):
                scores = x @ x.transpose(-1, -2)
                return nn.functional.softmax(scores, dim=-1) @ x

        class Router(nn.Module):
            def forward(self, x):
                return nn.functional.softmax(x, dim=-1)

        model = nn.Sequential(OldAttention(), Router())
        tensors = self.capture(model, torch.ones(1, 2, 2), functions=True)
        self.assertEqual(list(tensors), ["0.attn_scores_masked", "0.attn_probs", "0", "1", "output"])
        self.assertEqual(tensors["0.attn_scores_masked"].values(), [2, 2, 2, 2])
        self.assertEqual(tensors["0.attn_probs"].values(), [0.5] * 4)

    def test_functions_from_the_table(self):
        import tiny_model
        tensors, _ = strict.load(self.traced("a", implementation="other"))
        self.assertIn("model.layers.1.self_attn.attn_context", tensors)
        self.assertEqual(tiny_model.modeling.ALL_ATTENTION_FUNCTIONS._local_mapping, {})
        self.assertIs(tiny_model.modeling.eager_attention_forward, tiny_model.eager_attention_forward)
        self.assertIs(tiny_model.modeling.apply_rotary_pos_emb, tiny_model.apply_rotary_pos_emb)
        self.assertNotIn("wrapped", nn.functional.softmax.__qualname__)

    def test_functions_by_name(self):
        import tiny_model
        model = tiny_model.make()
        with tsleuth.capture(model, self.path, include="layers.0", functions={
                "transformers.models.tiny.modeling_tiny.apply_rotary_pos_emb": ("turned_q", "turned_k")}):
            model(input_ids=torch.tensor(tiny_model.IDS))
        names = list(self.load())
        self.assertIn("model.layers.0.self_attn.turned_q", names)
        self.assertNotIn("model.layers.0.self_attn.attn_context", names)
        with self.assertRaisesRegex(AttributeError, "no function nothing"):
            tsleuth.capture(model, self.path, functions=["json.nothing"]).start()
        self.assertEqual(ACTIVE, [])

    def test_the_same(self):
        report = tsleuth.compare(self.traced("a"), self.traced("b"))
        self.assertEqual((report.verdict, bool(report), report.first_divergence), ("match", True, None))
        self.assertIn("match", str(report))

    def test_half_precision_is_noise(self):
        report = tsleuth.compare(self.traced("a"), self.traced("b", change=lambda model: model.bfloat16()))
        self.assertNotEqual(report.verdict, "differ", str(report))

    def check(self, expected, cause, place=0, **changes):
        """`cause` stands at this place of the list."""
        a, b = self.traced("a"), self.traced("b", **changes)
        report = tsleuth.compare(a, b)
        self.assertEqual(report.verdict, "differ")
        self.assertEqual(report.first_divergence["name"], expected, str(report))
        self.assertEqual(report.causes[place]["id"], cause, str(report))
        self.assertIn(expected, str(report))
        explanation = tsleuth.explain(a, b, expected)
        self.assertEqual(explanation.causes[place]["id"], cause)
        self.assertIn(cause, str(explanation))

    def test_planted_eps(self):
        def change(model):
            model.model.layers[1].post_attention_layernorm.eps = 0.3
        self.check("model.layers.1.post_attention_layernorm", "row-scaled", change=change)

    def test_planted_activation(self):
        def change(model):
            model.model.layers[2].mlp.act_fn = nn.GELU()
        self.check("model.layers.2.mlp.act_fn", "activation", change=change)

    def test_planted_residual(self):
        def change(model):
            layer = model.model.layers[1]

            def forward(hidden_states, position_embeddings=None, mask=None):
                normed = layer.input_layernorm(hidden_states)
                attended = layer.self_attn(normed, position_embeddings, mask)[0]
                return hidden_states + attended + layer.mlp(layer.post_attention_layernorm(attended))

            layer.forward = forward
        # Without one of its two terms a sum is the other one: "skipped-op" is as true, and stands first.
        self.check("model.layers.1.attn_residual", "term-missing", place=1, change=change)

    def test_planted_rotation(self):
        import tiny_model

        def change(model):
            attention = model.model.layers[1].self_attn
            rotary = tiny_model.Rotary(8, 500.0)
            forward = attention.forward

            def turned(hidden_states, position_embeddings=None, mask=None):
                return forward(hidden_states, rotary(torch.arange(hidden_states.shape[1])), mask)

            attention.forward = turned
        self.check("model.layers.1.self_attn.q_rope", "rotation", change=change)

    def shards(self, whole, folder, change=None):
        """What two ranks of a tensor-parallel run would write."""
        folder.mkdir()
        for rank in range(2):
            with tsleuth.capture(None, folder / "run.safetensors", rank=rank):
                for name, one in whole.items():
                    value = torch.tensor(one.values()).reshape(one.shape)
                    if any(word in name for word in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "act_fn")):
                        value = value.chunk(2, -1)[rank]
                    tsleuth.tap(name, change(name, rank, value) if change else value)
        return folder

    def test_ranks_are_put_together(self):
        path = self.traced("a", options={"include": "layers"})
        whole, _ = strict.load(path)
        report = tsleuth.compare(path, self.shards(whole, self.folder / "good"))
        self.assertEqual((report.verdict, len(report)), ("match", len(whole)))

        def change(name, rank, value):
            return value * 2 if rank == 1 and name == "model.layers.1.mlp.up_proj" else value

        report = tsleuth.compare(path, self.shards(whole, self.folder / "bad", change))
        self.assertEqual((report.verdict, report.first_divergence["name"]), ("differ", "model.layers.1.mlp.up_proj"))

    def test_generate(self):
        import tiny_model
        model = tiny_model.make()
        with tsleuth.capture(model, self.path, include=r"layers\.0\.mlp$|logits"), torch.no_grad():
            ids = model.generate(torch.tensor(tiny_model.IDS), 3)
        tensors = self.load()
        self.assertEqual(list(tensors), ["model.layers.0.mlp", "logits", "step_1.model.layers.0.mlp", "step_1.logits",
                                         "step_2.model.layers.0.mlp", "step_2.logits"])
        self.assertEqual(tensors["step_2.logits"].shape, (1, 10, 50))
        self.assertEqual(self.run_data["tokens"], tiny_model.IDS[0])
        self.assertEqual(self.run_data["step_tokens"]["2"], ids[0, :10].tolist())
        names = [one["name"] for one in self.inspect(self.path)["tensors"]]
        self.assertEqual(names, list(tensors))
