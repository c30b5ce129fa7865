# SPDX-License-Identifier: Apache-2.0
"""petrapipe.Trainer on modules of other authors: the weights equal those of a loop in plain
PyTorch, or the module is refused before the first update with the true reason.

The loop for `backprop` and `1f1b` calls the network, `backward` and `step`. The loop for
`pipedream`
and `petra` copies the values of a version into the parameters, computes, and copies the latest
values back; the plan says which versions."""

from program import ProgramTest, main
from torch_case import Join, Split

# isort: split
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from petrapipe import (
    Coupling,
    Plan,
    StageError,
    Trainer,
)
from petrapipe.tensors import as_tuple

torch.manual_seed(1)
UPDATES, WIDTH = 10, 6
BATCHES = list(
    zip(torch.randn(UPDATES, 4, 3, 5, dtype=torch.float64), torch.randint(3, (UPDATES, 4, 3)))
)
METHODS = ("backprop", "1f1b", "pipedream", "petra")


def loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


class Linear(nn.Linear):
    """A layer whose tests change its forward: `act(layer, x)` comes before it."""

    def __init__(self, act=None, then=None):
        super().__init__(WIDTH, WIDTH)
        self.act, self.then = act, then or (lambda layer, y: torch.tanh(y))

    def forward(self, x):
        if self.act:
            self.act(self, x)
        return self.then(self, super().forward(x))


def changed(function):
    """A layer after a change by `function`."""
    layer = Linear()
    return function(layer) or layer


def set_data(layer, _):
    layer.weight.data = torch.renorm(layer.weight.data, 2, 0, 0.5)


def set_in_place(layer, _):
    with torch.no_grad():
        layer.weight.renorm_(2, 0, 0.5)


def bounded(layer, _):
    """Changes nothing until the weights have grown."""
    layer.weight.data = torch.renorm(layer.weight.data, 2, 0, 1.0)


def set_by_copy(layer, _):
    layer.weight.data.clamp_(-0.2, 0.2)


def decay(layer, _):
    layer.weight.data.mul_(0.99)


def masked(layer):
    mask = (torch.arange(WIDTH * WIDTH).view(WIDTH, WIDTH) % 2).double()
    layer.weight.register_hook(lambda gradient: gradient * mask)


def clipped(layer):
    layer.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))


def masked_after(layer):
    def halve(parameter):
        parameter.grad.mul_(0.5)

    layer.weight.register_post_accumulate_grad_hook(halve)


def stepped_after(layer):
    def step(parameter):
        parameter.data.sub_(0.1 * parameter.grad)

    layer.weight.register_post_accumulate_grad_hook(step)


class Doubled(nn.Module):
    def forward(self, weight):
        return weight + weight.transpose(0, 1)


class Quantised(nn.Module):
    """A weight of few levels, whose gradient passes straight through."""

    def forward(self, weight):
        return weight + ((weight * 8).round() / 8 - weight).detach()


class Product(torch.autograd.Function):
    """x w, where the backward reads the weight from `saved` tensors or from an attribute."""

    @staticmethod
    def forward(ctx, x, weight, attribute):
        ctx.attribute = attribute
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        weight = weight if ctx.attribute is None else ctx.attribute
        return dy @ weight.t(), x.flatten(0, -2).t() @ dy.flatten(0, -2), None


class Own(nn.Module):
    """A weight and a function of it."""

    def __init__(self, function, **more):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)
        self.function = function
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x):
        h, found = torch.zeros_like(x[:, 0]), []
        for step in x.unbind(1):
            h = self.cell(step, h)
            found.append(h)
        return torch.stack(found, 1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        return self.layer(x, x, x, need_weights=False)[0]


class Transposed(nn.Module):
    """A norm of the channels, which are the second dimension."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Flat(Transposed):
    """A norm of the channels, with one dimension for samples and places."""

    def forward(self, x):
        return self.norm(x.reshape(-1, WIDTH)).reshape(x.shape)


class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)
        for parameter in self.base.parameters():
            parameter.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Lookup(nn.Module):
    """A sparse gradient."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = nn.Embedding(7, WIDTH, sparse=True), Linear()

    def forward(self, x):
        return self.linear(x) * self.table((x.sum(-1) * 10).long() % 7)


class Penalty(nn.Module):
    """The output moves along the gradient of an energy: a derivative within the forward."""

    def __init__(self):
        super().__init__()
        self.layer = Linear()

    def forward(self, x):
        with torch.enable_grad():
            z = x if x.requires_grad else x.detach().requires_grad_()
            energy = self.layer(z).square().sum()
            return torch.autograd.grad(energy, z, create_graph=True)[0]


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.complex128) / 3)

    def forward(self, x):
        return (x.to(torch.complex128) @ self.weight).abs()


class Observed(nn.Module):
    """Quantisation-aware training: an observer counts a moving maximum in a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = Linear()
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x):
        self.largest.copy_(0.9 * self.largest + 0.1 * x.detach().abs().max())
        return self.layer(x)


class Twice(nn.Module):
    """A layer that is a child at two places."""

    def __init__(self):
        super().__init__()
        self.first = Linear()
        self.second = nn.Sequential(self.first, nn.Tanh())

    def forward(self, x):
        return self.second(self.first(x))


def listed():
    layer = Linear(then=lambda layer, y: y @ layer.list[0].t())
    layer.list = [layer.weight]
    return layer


def replaced(layer, _):
    layer.weight = nn.Parameter(layer.weight.detach() * 2)


def pruned():
    layer = Linear()
    prune.l1_unstructured(layer, "weight", 0.5)
    return layer


def hooked(register, *functions):
    layer = Linear()
    for function in functions:
        getattr(layer, register)(function)
    return layer


def frozen():
    layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    for parameter in layer[0].parameters():
        parameter.requires_grad_(False)
    return layer


def coupling(register, function):
    """Couplings whose hooks see a call of the module itself."""
    made = [Coupling(Linear()), Coupling(Linear())]
    for one in made:
        getattr(one, register)(function)
    return made


FOREIGN = torch.randn(WIDTH, WIDTH, dtype=torch.float64, requires_grad=True)
MODULES = {  # name -> the function F of two couplings, or the couplings
    "linear": Linear,
    "weight norm": lambda: nn.utils.weight_norm(Linear()),
    "orthogonal": lambda: parametrizations.orthogonal(Linear()),
    "symmetric": lambda: changed(
        lambda layer: parametrize.register_parametrization(layer, "weight", Doubled())
    ),
    "quantised": lambda: changed(
        lambda layer: parametrize.register_parametrization(layer, "weight", Quantised())
    ),
    "pruned": pruned,
    "maximum norm by data": lambda: Linear(set_data),
    "maximum norm in place": lambda: Linear(set_in_place),
    "maximum norm that weights reach later": lambda: Linear(bounded),
    "clamped weights": lambda: Linear(set_by_copy),
    "hook that masks": lambda: changed(masked),
    "hook that clips": lambda: changed(clipped),
    "forward hook": lambda: hooked("register_forward_hook", lambda module, x, y: 2 * y),
    "forward pre-hook": lambda: hooked("register_forward_pre_hook", lambda module, x: (x[0] / 2,)),
    "backward hook": lambda: hooked(
        "register_full_backward_hook", lambda module, dx, dy: (3 * dx[0],)
    ),
    "forward hook of a coupling": lambda: coupling(
        "register_forward_hook", lambda module, x, y: None
    ),
    "backward hook of a coupling": lambda: coupling(
        "register_full_backward_hook", lambda module, dx, dy: (0.5 * dx[0], *dx[1:])
    ),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(WIDTH), Linear()),
    "group norm": lambda: nn.Sequential(Transposed(nn.GroupNorm(2, WIDTH)), Linear()),
    "instance norm": lambda: nn.Sequential(
        Transposed(nn.InstanceNorm1d(WIDTH, affine=True)), Linear()
    ),
    "local response norm": lambda: nn.Sequential(Transposed(nn.LocalResponseNorm(2)), Linear()),
    "batch norm": lambda: nn.Sequential(Transposed(nn.BatchNorm1d(WIDTH)), Linear()),
    "batch norm without momentum": lambda: nn.Sequential(
        Transposed(nn.BatchNorm1d(WIDTH, momentum=None)), Linear()
    ),
    "PReLU": lambda: nn.Sequential(Linear(), nn.PReLU()),
    "LSTM": lambda: Recurrent(nn.LSTM),
    "GRU": lambda: Recurrent(nn.GRU),
    "cell": Cell,
    "attention": Attention,
    "encoder layer": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True),
    "bilinear": lambda: Own(
        lambda self, x: torch.tanh(self.form(x, x)), form=nn.Bilinear(WIDTH, WIDTH, WIDTH)
    ),
    "transposed weight": lambda: Own(lambda self, x: torch.tanh(x @ self.weight) @ self.weight.t()),
    "function that saves its weight": lambda: Own(
        lambda self, x: torch.tanh(Product.apply(x, self.weight, None))
    ),
    "function with a weight as attribute": lambda: Own(
        lambda self, x: torch.tanh(Product.apply(x, self.weight, self.weight))
    ),
    "checkpoint": lambda: Own(
        lambda self, x: checkpoint(self.layer, x, use_reentrant=False), layer=Linear()
    ),
    "reentrant checkpoint": lambda: Own(
        lambda self, x: checkpoint(self.layer, x, use_reentrant=True), layer=Linear()
    ),
    "low rank": LowRank,
    "frozen layer": frozen,
    "sparse gradient": Lookup,
    "derivative in the forward": Penalty,
    "complex weight": Complex,
    "a layer at two places": Twice,
    "a weight in a list": listed,
    "script": lambda: torch.jit.script(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())),
    "weight dropped at times": lambda: Own(
        lambda self, x: x if x.sum() > 0 else torch.tanh(x @ self.weight)
    ),
}
REFUSED = {  # name -> the function F of the first coupling, words of the refusal
    "a decay in the forward": (
        lambda: Linear(decay),
        "changes its parameter function.weight at every call",
    ),
    "a backward in the forward": (
        lambda: Linear(
            lambda layer, x: (
                layer.weight.square().sum().backward() if torch.is_grad_enabled() else None
            )
        ),
        "calls backward() in its forward",
    ),
    "spectral norm": (lambda: parametrizations.spectral_norm(Linear()), "changes the buffer"),
    "instance norm with statistics": (
        lambda: Transposed(nn.InstanceNorm1d(WIDTH, affine=True, track_running_stats=True)),
        "changes the buffer",
    ),
    "observer": (Observed, "changes the buffer function.largest"),
    "a parameter that is replaced": (
        lambda: Linear(replaced),
        "has another object as its parameter weight than at the beginning",
    ),
    "a tensor that is no parameter": (
        lambda: Own(lambda self, x: x @ self.weight @ FOREIGN),
        "requires a gradient and is no parameter",
    ),
    "batch norm called twice": (
        lambda: Own(
            lambda self, x: self.norm(self.norm(x) @ self.weight),
            norm=Transposed(nn.BatchNorm1d(WIDTH)),
        ),
        "calls a batch norm twice",
    ),
}
if hasattr(parametrizations, "weight_norm"):  # PyTorch 2
    MODULES["weight norm as a parametrization"] = lambda: parametrizations.weight_norm(Linear())
    MODULES["compiled"] = lambda: torch.compile(
        nn.Sequential(Flat(nn.BatchNorm1d(WIDTH)), Linear()), backend="aot_eager"
    )
if hasattr(nn, "RMSNorm"):
    MODULES["RMS norm"] = lambda: nn.Sequential(nn.RMSNorm(WIDTH), Linear())
if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    MODULES["hook after accumulation"] = lambda: changed(masked_after)
    REFUSED["an update in a hook"] = (
        lambda: changed(stepped_after),
        "or a hook in it, changes its parameter function.weight",
    )


def network(make):
    torch.manual_seed(3)
    made = make()
    middle = made if isinstance(made, list) else [Coupling(made), Coupling(make())]
    return [stage.double() for stage in (Split(5, 2 * WIDTH), *middle, Join(2 * WIDTH, 3))]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.5)


def weights(stages):
    return [p.detach().clone() for stage in stages for p in [*stage.parameters(), *stage.buffers()]]


def plain_loop(stages, act=None):
    """Backpropagation through the network as a user writes it."""
    optimizers = [sgd(stage.parameters()) for stage in stages]
    for m, (x, target) in enumerate(BATCHES):
        if act:
            act(m, stages)
        for stage in stages:
            x = stage(*as_tuple(x))
        loss(x, target).backward()
        for one in optimizers:
            one.step()
            one.zero_grad(set_to_none=True)
    return weights(stages)


class Values:
    """The values of the parameters of a stage by version. Buffers move in the backward alone."""

    def __init__(self, stage):
        self.stage, self.count, self.optimizer = stage, 0, sgd(list(stage.parameters()))
        self.of, self.gradients = {0: self._now()}, None

    def _now(self):
        return [p.detach().clone() for p in self.stage.parameters()]

    def compute(self, version, function, keep_buffers):
        """Returns function() with the values of a version in the parameters."""
        latest, buffers = self._now(), [b.clone() for b in self.stage.buffers()]
        for p, value in zip(self.stage.parameters(), self.of[version]):
            p.data.copy_(value)
        found = function()
        self.of[version] = self._now()
        if version != self.count:
            for p, value in zip(self.stage.parameters(), latest):
                p.data.copy_(value)
        if keep_buffers:
            for b, value in zip(self.stage.buffers(), buffers):
                b.copy_(value)
        return found

    def step(self):
        for p, g in zip(self.stage.parameters(), self.gradients):
            p.grad = g
        self.optimizer.step()
        self.count += 1
        self.of[self.count] = self._now()


def loop_of_plan(stages, plan):
    """The actions of a plan one after the other. B computes the forward again."""
    all_values, inputs, up, down = [Values(stage) for stage in stages], {}, {}, {}
    inverts = plan.method["keep"] == "nothing"
    for row in range(len(plan)):
        kind, j, m, version = (
            str(plan.kind[row]),
            int(plan.stage[row]) - 1,
            int(plan.microbatch[row]),
            int(plan.weights[row]),
        )
        values, stage, last = all_values[j], stages[j], j == len(stages) - 1
        if kind == "U":
            values.step()
            continue
        if kind == "F" or last and plan.fused_head:
            inputs[j, m] = as_tuple(BATCHES[m][0] if j == 0 else up.pop((j, m)))
        if kind == "F" and last:
            continue
        if kind == "F":
            with torch.no_grad():
                up[j + 1, m] = values.compute(version, lambda: stage(*inputs[j, m]), True)
            continue
        xs = inputs.pop((j, m))
        ys, dys = ((), None) if last else down.pop((j, m))
        if inverts and isinstance(stage, Coupling):
            with torch.no_grad():
                xs = values.compute(
                    int(plan.inverse_weights[row]), lambda: stage.inverse(*ys), True
                )

        def backward():
            for p in stage.parameters():
                p.grad = None
            leaves = [x.detach().requires_grad_(j > 0) for x in xs]
            out = as_tuple(stage(*leaves))
            if last:
                loss(out[0], BATCHES[m][1]).backward()
            else:
                torch.autograd.backward(out, dys)
            return [x.grad for x in leaves], [p.grad for p in stage.parameters()]

        dxs, values.gradients = values.compute(version, backward, False)
        if j > 0:
            down[j - 1, m] = (xs, dxs)
    return weights(stages)


class Modules(ProgramTest):
    def setUp(self):
        super().setUp()
        self.plans = {}

    def plan(self, method):
        if method not in self.plans:
            config = {"method.name": method, "run.drain": "true"}
            self.plans[method] = Plan.of_config(
                config, petra="./petra", cluster__stages=4, run__max_microbatches=UPDATES
            )
        return self.plans[method]

    def trained(self, stages, method, data=None, act=None, **more):
        """Returns the weights after a training; act(m, stages) comes before the forward of
        microbatch m."""
        began = []

        def microbatch(m):
            if act and began:
                act(m, stages)
            return (data or BATCHES)[m]

        trainer = Trainer(
            stages, {}, loss, optimizer=sgd, data=microbatch, plan=self.plan(method), **more
        )
        began.append(True)
        trainer.run()
        return weights(stages)

    def compare(self, name, make, method, act=None):
        """Compares the weights and buffers after a training with the loop's."""
        found = self.trained(network(make), method, act=act)
        other = network(make)
        expected = (
            plain_loop(other, act)
            if method in ("backprop", "1f1b")
            else loop_of_plan(other, self.plan(method))
        )
        far = max(float((a - b).abs().max()) for a, b in zip(found, expected))
        moved = max(float((a - b).abs().max()) for a, b in zip(found, weights(network(make))))
        self.assertLess(far, 1e-11, (name, method))
        self.assertGreater(moved, 1e-2, (name, method))

    def test_equal_to_loops_in_plain_pytorch(self):
        for name, make in MODULES.items():
            for method in METHODS:
                with self.subTest(module=name, method=method):
                    self.compare(name, make, method)

    def test_refused_before_the_first_update(self):
        for name, (make, words) in REFUSED.items():
            for method in METHODS:
                with self.subTest(module=name, method=method):
                    stages = network(make)
                    before = weights(stages)
                    with self.assertRaises(StageError) as caught:
                        self.trained(stages, method)
                    self.assertIn(words, str(caught.exception))
                    self.assertNotIn("\n", str(caught.exception))
                    if "buffer" not in words and name != "a parameter that is replaced":
                        self.assertTrue(all(map(torch.equal, before, weights(stages))), name)

    def test_weights_that_are_frozen_and_thawed(self):
        def act(m, stages):
            """Freezes a trained layer for a while; thaws one that was frozen from the beginning."""
            stages[1].function[2].weight.requires_grad_(not 3 <= m < 6)
            if m == 4:
                for parameter in stages[2].function[0].parameters():
                    parameter.requires_grad_(True)

        for method in ("backprop", "1f1b"):
            self.compare("thawed", frozen, method, act)

    def test_a_parameter_of_another_stage(self):
        stages = network(Linear)
        stages[2].function.list = [stages[1].function.weight]
        stages[2].function.then = lambda layer, y: y @ layer.list[0]
        with self.assertRaises(StageError) as caught:
            self.trained(stages, "petra")
        self.assertIn(
            "stage 3 (Coupling): reads a tensor of shape (6, 6) that requires a gradient",
            str(caught.exception),
        )
        stages[2].function.then = lambda layer, y: checkpoint(
            lambda x: x @ layer.list[0], y, use_reentrant=True
        )
        with self.assertRaises(StageError) as caught:
            self.trained(stages, "petra")
        self.assertIn(
            "stage 3 (Coupling): gives a gradient to a parameter of another stage",
            str(caught.exception),
        )

    def test_a_parameter_replaced_during_the_run(self):
        stages = network(Linear)

        def act(m, stages):
            if m == 5:
                stages[1].function.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH).double())

        with self.assertRaises(StageError) as caught:
            self.trained(stages, "backprop", act=act)
        self.assertIn(
            "stage 2 (Coupling): has another object as its parameter weight", str(caught.exception)
        )

    def test_weights_set_while_other_microbatches_are_in_flight(self):
        """A pass between the forward and the backward of a kept graph changes the weights in
        place."""
        config = {"method.name": "1f1b", "method.accumulate": UPDATES // 2}
        plan = Plan.of_config(
            config, petra="./petra", cluster__stages=4, run__max_microbatches=UPDATES
        )
        stages, other = network(lambda: Linear(set_in_place)), network(lambda: Linear(set_in_place))
        Trainer(stages, {}, loss, optimizer=sgd, data=BATCHES, plan=plan).run()
        optimizers = [sgd(stage.parameters()) for stage in other]
        for m, (x, target) in enumerate(BATCHES):
            for stage in other:
                x = stage(*as_tuple(x))
            (loss(x, target) / plan.accumulate).backward()
            for one in optimizers if m % plan.accumulate == plan.accumulate - 1 else ():
                one.step()
                one.zero_grad(set_to_none=True)
        far = max(float((a - b).abs().max()) for a, b in zip(weights(stages), weights(other)))
        self.assertLess(far, 1e-11)

    def test_a_parameter_of_another_module_of_the_stage(self):
        class Shared(nn.Module):
            def __init__(self, list_):
                super().__init__()
                self.linear, self.list = nn.Linear(WIDTH, WIDTH), list_

            def forward(self, a, b):
                return torch.tanh(self.linear(a)) @ self.list[0], b

        class Both(nn.Sequential):
            def forward(self, *xs):
                return self[1](*self[0](*xs))

        def made(join, first):
            def make():
                owner = Shared([torch.eye(WIDTH).double()])
                reader = Shared([owner.linear.weight])
                return [Both(*((reader, owner) if first else (owner, reader)))]

            stages = network(make)
            return (
                stages
                if join
                else [list(stage) if isinstance(stage, Both) else stage for stage in stages]
            )

        # petra keeps the input of each module of its own.
        for method in (
            "backprop",
            "1f1b",
            "pipedream",
        ):
            for first in (True, False):
                config = {"method.name": method, "run.drain": "true", "method.keep": "input"}
                plan = Plan.of_config(
                    config, petra="./petra", cluster__stages=3, run__max_microbatches=UPDATES
                )
                stages, other = made(False, first), made(True, first)
                Trainer(stages, {}, loss, optimizer=sgd, data=BATCHES, plan=plan).run()
                found = weights(
                    [
                        nn.Sequential(*stage) if isinstance(stage, list) else stage
                        for stage in stages
                    ]
                )
                expected = (
                    plain_loop(other)
                    if method in ("backprop", "1f1b")
                    else loop_of_plan(other, plan)
                )
                far = max(float((a - b).abs().max()) for a, b in zip(found, expected))
                self.assertLess(far, 1e-11, (method, first))

    def test_probes_change_nothing(self):
        """Also if a hook draws random numbers, or a forward sets weights by its input."""

        def noisy(layer):
            layer.weight.register_hook(
                lambda gradient: gradient + 0.01 * torch.randn_like(gradient)
            )

        def by_input(layer, x):
            layer.weight.data.renorm_(2, 0, float(x.abs().mean()) + 0.3)

        for make in (
            lambda: changed(noisy),
            lambda: Linear(by_input),
            lambda: Linear(set_in_place),
        ):
            for method in ("backprop", "petra"):
                found = []
                for probes in (0, 5):
                    stages = network(make)
                    config = {"method.name": method, "probe.per_epoch": probes}
                    Trainer(
                        stages, config, loss, optimizer=sgd, data=BATCHES, epochs=2, petra="./petra"
                    ).run()
                    found.append(weights(stages))
                self.assertTrue(all(map(torch.equal, *found)), method)

    def test_a_frozen_parameter_of_two_stages(self):
        """It may be shared, but not thawed: both stages would train it."""

        def stages():
            made = network(Linear)
            made[2].function.weight = made[1].function.weight.requires_grad_(False)
            return made

        self.trained(stages(), "petra")
        with self.assertRaises(StageError) as caught:
            self.trained(
                stages(),
                "petra",
                act=lambda m, stages: stages[1].function.weight.requires_grad_(m > 4),
            )
        self.assertIn(
            "stage 3 (Coupling): its parameter function.weight is also one of stage 2",
            str(caught.exception),
        )

    def test_values_assigned_during_the_run(self):
        """parameter.data = … and in-place changes between two microbatches stay."""

        def act(m, stages):
            if m % 3 == 1:
                stages[1].function.weight.data = stages[1].function.weight.data / 2
                stages[2].function.weight.data.mul_(0.5)

        self.compare("assigned", Linear, "backprop", act)

    def test_a_nan_in_the_input(self):
        """A stage may fill what is missing in its input."""
        first = BATCHES[0][0].clone()
        first[0, 0, 0] = float("nan")
        stages, kept = network(Linear), BATCHES[0]
        stages[0] = nn.Sequential(
            Own(lambda self, x: torch.nan_to_num(x, nan=0.5)), stages[0]
        ).double()
        other = network(Linear)
        BATCHES[0] = (first, kept[1])
        try:
            self.trained(stages, "backprop")
            BATCHES[0] = (torch.nan_to_num(first, nan=0.5), kept[1])
            expected = plain_loop(other)
        finally:
            BATCHES[0] = kept
        far = [float((a - b).abs().max()) for a, b in zip(weights(stages)[1:], expected)]
        self.assertLess(max(far), 1e-11)

    def test_an_autocast_around_the_run(self):
        """It caches copies of weights, which must not be those of another version."""

        def run(around):
            stages = [stage.float() for stage in network(Linear)]
            data = [(x.float(), t) for x, t in BATCHES]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
                return self.trained(stages, "petra", data=data, autocast=torch.bfloat16)

        self.assertTrue(all(map(torch.equal, run(True), run(False))))


if __name__ == "__main__":
    main()
