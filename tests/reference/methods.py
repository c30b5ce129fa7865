# SPDX-License-Identifier: Apache-2.0
"""The training methods, with one block a stage. Weights are never changed in place: an update makes
new tensors, so that keeping a version of the weights is keeping a dictionary.

`sequential` runs `backprop` and `reversible`: every microbatch goes forward and backward before the
next one starts. `lockstep` runs the delayed methods: at global tick t, stage j forwards microbatch
t - (j - 1), and sends back microbatch t - (2J - 1 - j), both with the weights it holds after the
tick before; then it updates if k backwards were counted. `one_stage` runs them with all blocks in
one stage, whose backward comes a given number of microbatches after its forward. `local` runs
`dgl`: every stage goes back from a loss of its own, and nothing is sent down.
`forward_locked` runs `ddg` and `fr`: in round m microbatch m goes forward through all stages, then
every stage j sends back microbatch m - (J - j), with the gradient that stage j + 1 found in the
round before, and updates if k backwards were counted. `late_graphs` runs `paci`, whose passes are
those of `forward_locked`, until all microbatches have come back.
"""

import torch

from formats import Formats
from nets import BN_MOMENTUM, decays

# method: (weights of the backward, weights of the inversion, whether a reversible stage keeps its
# input too)
LOCKSTEP = {
    "petra": ("latest", "latest", False),
    "delayed": ("stashed", None, True),
    "dsp": ("latest", None, True),
    "delayed-reversible": ("stashed", "stashed", False),
    "approximate-input": ("stashed", "latest", False),
}
# DDG keeps graphs, which is as good as the inputs with the weights of then; features replay keeps
# the inputs alone.
FORWARD_LOCKED = {"ddg": ("stashed", None, True), "fr": ("latest", None, True)}
# The passes of PACI come after the same updates as those of features replay.
LATE_GRAPHS = {"paci": ("latest", None, True)}
SEQUENTIAL = ("backprop", "reversible")
LOCAL = ("dgl",)
METHODS = tuple(LOCKSTEP) + tuple(FORWARD_LOCKED) + tuple(LATE_GRAPHS) + SEQUENTIAL + LOCAL


class Optimiser:
    """SGD with PyTorch's momentum: v = mu v + g (first step v = g); step g + mu v (Nesterov) or
    v."""

    def __init__(self, lr, momentum=0.9, nesterov=True, weight_decay=5e-4):
        self.lr, self.momentum, self.nesterov, self.weight_decay = (
            lr,
            momentum,
            nesterov,
            weight_decay,
        )

    def step(self, tensors, gradients, velocity, block=None):
        """Returns the new tensors; `velocity` ({} before the first step) is changed. `block`: as
        other optimisers want it."""
        new = dict(tensors)
        for name, g in gradients.items():
            w = tensors[name]
            if decays(name):
                g = g + self.weight_decay * w
            velocity[name] = v = self.momentum * velocity[name] + g if name in velocity else g
            new[name] = w - self.lr * (g + self.momentum * v if self.nesterov else v)
        return new


class Stage:
    """One block, its weights, its momentum, the gradient summed so far."""

    def __init__(self, block, tensors, optimiser, accumulate):
        self.block, self.tensors, self.optimiser, self.accumulate = (
            block,
            dict(tensors),
            optimiser,
            accumulate,
        )
        self.names = block.parameters()
        self.velocity, self.sum, self.counted, self.updates = {}, {}, 0, 0
        self.inputs, self.stash = {}, {}
        self.peak_inputs = 0

    def keep(self, microbatch, xs):
        self.inputs[microbatch] = xs
        self.peak_inputs = max(self.peak_inputs, len(self.inputs))

    def leaves(self, tensors):
        return {
            n: t.detach().requires_grad_() if n in self.names else t for n, t in tensors.items()
        }

    def count(self, gradients):
        for name, g in gradients.items():
            share = g / self.accumulate
            self.sum[name] = self.sum[name] + share if name in self.sum else share
        self.counted += 1

    def move_statistics(self, stats):
        for prefix, (mean, variance) in stats.items():
            for name, value in (
                (f"{prefix}/running_mean", mean),
                (f"{prefix}/running_var", variance),
            ):
                self.tensors[name] = (1 - BN_MOMENTUM) * self.tensors[name] + BN_MOMENTUM * value

    def update_if_due(self):
        if self.counted == self.accumulate:
            self.tensors = self.optimiser.step(self.tensors, self.sum, self.velocity, self.block)
            self.sum, self.counted = {}, 0
            self.updates += 1

    def recompute(self, tensors, xs, dys):
        """Backward from an input: returns (input gradients, none of tokens, parameter gradients,
        batch statistics)."""
        stats = {}
        p = self.leaves(tensors)
        xs = tuple(x.detach().requires_grad_(x.is_floating_point()) for x in xs)
        ys = self.block.forward(p, xs, stats)
        wanted = tuple(x for x in xs if x.requires_grad)
        gradients = torch.autograd.grad(ys, wanted + tuple(p[n] for n in self.names), dys)
        return gradients[: len(wanted)], dict(zip(self.names, gradients[len(wanted) :])), stats

    def invert(self, tensors, ys, dys):
        """Backward of a reversible block from its output, its branch being evaluated once: returns
        (reconstructed input, input gradients, parameter gradients, batch statistics)."""
        stats = {}
        p = self.leaves(tensors)
        y1, y2 = ys
        dy1, dy2 = dys
        x1 = self.block.undo(y2.detach()).requires_grad_()
        f, _ = self.block.branch(p, x1, stats)
        x2 = self.block.solve(x1.detach(), y1, f.detach())
        gradients = torch.autograd.grad(f, (x1,) + tuple(p[n] for n in self.names), dy1)
        return (
            (x1.detach(), x2),
            self.block.pull_back(dy1, dy2, gradients[0]),
            dict(zip(self.names, gradients[1:])),
            stats,
        )

    def head(self, xs, labels, tensors=None):
        """Forward, loss and backward in one, with the stage's tensors or others: returns (loss,
        input gradients, parameter gradients)."""
        p = self.leaves(self.tensors if tensors is None else tensors)
        xs = tuple(x.detach().requires_grad_() for x in xs)
        loss = self.block.loss(p, xs, labels)
        gradients = torch.autograd.grad(loss, xs + tuple(p[n] for n in self.names))
        return loss.item(), gradients[: len(xs)], dict(zip(self.names, gradients[len(xs) :]))


def make_stages(blocks, weights, optimiser, accumulate):
    return [Stage(b, w, optimiser, accumulate) for b, w in zip(blocks, weights)]


def result(stages):
    return [{name: stage.tensors[name] for name, _ in stage.block.tensors} for stage in stages]


def exact_gradient(blocks, weights, images, labels):
    """Loss and gradients ([{name: tensor}] per block) of one microbatch by automatic
    differentiation of the whole network, and the batch statistics."""
    leaves = [{n: t.detach().requires_grad_() for n, t in w.items()} for w in weights]
    stats = [{} for _ in blocks]
    xs = (images,)
    for block, p, s in zip(blocks[:-1], leaves, stats):
        xs = block.forward(p, xs, s)
    loss = blocks[-1].loss(leaves[-1], xs, labels)
    names = [(j, n) for j, b in enumerate(blocks) for n in b.parameters()]
    values = torch.autograd.grad(loss, [leaves[j][n] for j, n in names])
    gradients = [{} for _ in blocks]
    for (j, n), g in zip(names, values):
        gradients[j][n] = g
    return loss.item(), gradients, stats


def reversible_gradient(stages, images, labels):
    """The same with nothing kept but the inputs of blocks that cannot be inverted."""
    kept, xs = {}, (images,)
    with torch.no_grad():
        for j, stage in enumerate(stages[:-1]):
            if not stage.block.reversible:
                kept[j] = xs
            xs = stage.block.forward(stage.tensors, xs)
    gradients, stats = [None] * len(stages), [{} for _ in stages]
    loss, dxs, gradients[-1] = stages[-1].head(xs, labels)
    for j in range(len(stages) - 2, -1, -1):
        stage = stages[j]
        if stage.block.reversible:
            xs, dxs, gradients[j], stats[j] = stage.invert(stage.tensors, xs, dxs)
        else:
            xs = kept[j]
            dxs, gradients[j], stats[j] = stage.recompute(stage.tensors, xs, dxs)
    return loss, gradients, stats


def sequential(blocks, weights, batches, microbatches, accumulate, optimiser, method, observe=None):
    """Returns (final weights, [(microbatch, loss)]); observe(stage, microbatch, gradients) sees
    every gradient."""
    stages = make_stages(blocks, weights, optimiser, accumulate)
    losses = []
    for m in range(microbatches):
        images, labels = batches(m)
        if method == "reversible":
            loss, gradients, stats = reversible_gradient(stages, images, labels)
        else:
            loss, gradients, stats = exact_gradient(
                blocks, [s.tensors for s in stages], images, labels
            )
        losses.append((m, loss))
        for j, stage in enumerate(stages):
            if observe:
                observe(j + 1, m, gradients[j])
            stage.count(gradients[j])
            stage.move_statistics(stats[j])
            stage.update_if_due()
    return result(stages), losses


class Lockstep:
    """One run of a delayed method. `lag_error` is a deliberate mistake: every stage below the head
    does its backward that many ticks late. With `extra_delay` every stage, the head included, does
    it that many ticks later: the head then forwards a microbatch, whose loss is that of this
    moment, and goes back that many ticks later from the input that it kept. `formats`: of messages
    and of kept inputs."""

    def __init__(
        self,
        blocks,
        weights,
        batches,
        accumulate,
        optimiser,
        method,
        lag_error=0,
        observe=None,
        trace=None,
        extra_delay=0,
        formats=None,
    ):
        self.backward_weights, self.invert_weights, self.keep_all = (
            LOCKSTEP | FORWARD_LOCKED | LATE_GRAPHS
        )[method]
        self.stages = make_stages(blocks, weights, optimiser, accumulate)
        self.batches, self.lag_error, self.observe, self.trace = batches, lag_error, observe, trace
        self.extra_delay, self.formats = extra_delay, formats or Formats()
        self.up = [{} for _ in blocks]  # stage index -> microbatch -> input streams
        # Stage index -> microbatch -> (output streams, their gradients)
        self.down = [{} for _ in blocks]
        self.losses = []

    def note(self, what, j, m):
        if self.trace is not None:
            self.trace[(what, j + 1, m)] = self.stages[j].updates

    def finish(self, j, m, gradients, stats):
        self.note("B", j, m)
        if self.observe:
            self.observe(j + 1, m, gradients)
        self.stages[j].count(gradients)
        self.stages[j].move_statistics(stats)

    def forward(self, j, m):
        stage = self.stages[j]
        xs = (self.batches(m)[0],) if j == 0 else self.up[j].pop(m)
        self.note("F", j, m)
        if not stage.block.reversible or self.keep_all:
            stage.keep(m, self.formats.kept(j, m, xs))
        if "stashed" in (self.backward_weights, self.invert_weights):
            stage.stash[m] = stage.tensors
        with torch.no_grad():
            self.up[j + 1][m] = self.formats.up(j, m, stage.block.forward(stage.tensors, xs))

    def backward(self, j, m):
        stage = self.stages[j]
        ys, dys = self.down[j].pop(m)
        versions = {"latest": stage.tensors, "stashed": stage.stash.pop(m, None)}
        weights = versions[self.backward_weights]
        if m in stage.inputs:
            xs = stage.inputs.pop(m)
            dxs, gradients, stats = stage.recompute(weights, xs, dys)
        elif self.invert_weights == self.backward_weights:
            xs, dxs, gradients, stats = stage.invert(weights, ys, dys)
        else:
            with torch.no_grad():
                xs = stage.block.inverse(versions[self.invert_weights], ys)
            dxs, gradients, stats = stage.recompute(weights, xs, dys)
        if j > 0:
            self.down[j - 1][m] = self.formats.down(j, m, xs, dxs)
        self.finish(j, m, gradients, stats)

    def head(self, m):
        j = len(self.stages) - 1
        xs = self.up[j].pop(m)
        self.note("F", j, m)
        loss, dxs, gradients = self.stages[j].head(xs, self.batches(m)[1])
        self.losses.append((m, loss))
        self.down[j - 1][m] = self.formats.down(j, m, xs, dxs)
        self.finish(j, m, gradients, {})

    def late_head(self, forwarded, returned):
        """A head whose backward is another action than its forward."""
        j = len(self.stages) - 1
        stage = self.stages[j]
        if forwarded >= 0:
            xs = self.up[j].pop(forwarded)
            self.note("F", j, forwarded)
            stage.keep(forwarded, self.formats.kept(j, forwarded, xs))
            stage.stash[forwarded] = stage.tensors
            with torch.no_grad():
                self.losses.append(
                    (
                        forwarded,
                        stage.block.loss(stage.tensors, xs, self.batches(forwarded)[1]).item(),
                    )
                )
        if returned >= 0:
            xs, then = stage.inputs.pop(returned), stage.stash.pop(returned)
            weights = then if self.backward_weights == "stashed" else stage.tensors
            _, dxs, gradients = stage.head(xs, self.batches(returned)[1], weights)
            self.down[j - 1][returned] = self.formats.down(j, returned, xs, dxs)
            self.finish(j, returned, gradients, {})

    def tick(self, t):
        count, late = len(self.stages), self.extra_delay
        for j in range(count):
            m = t - j
            if j == count - 1 and late:
                self.late_head(m, m - late)
            elif m >= 0:
                if j == count - 1:
                    self.head(m)
                else:
                    self.forward(j, m)
            # In stage numbers from 1: t - (2J - 1 - j).
            m = t - (2 * count - 2 - j) - self.lag_error - late
            if j < count - 1 and m >= 0:
                self.backward(j, m)
            self.stages[j].update_if_due()


class Ordered(Lockstep):
    """The actions of a file, as `petra schedule` prints it, one line a device: each as soon as
    those before it in its line are done and what it needs is there. A head without F goes back at
    once; an update takes what was counted."""

    def __init__(self, lines, *rest):
        super().__init__(*rest)
        self.lines = [
            [self.action(word) for word in line.split(":")[1].split() if word not in ("|", "||")]
            for line in lines
        ]
        self.fused = not any(
            kind == "F" and j == len(self.stages) - 1 for line in self.lines for kind, j, _ in line
        )

    @staticmethod
    def action(word):
        kind = word.strip("0123456789")
        stage, microbatch = word.split(kind)
        return kind, int(stage) - 1, int(microbatch)

    def act(self, kind, j, m):
        """False: what it needs is not there yet."""
        last = j == len(self.stages) - 1
        if kind == "U":
            self.stages[j].update_if_due()
        elif kind == "B" and last and self.fused:
            if m not in self.up[j]:
                return False
            self.head(m)
        elif kind == "F":
            if j > 0 and m not in self.up[j]:
                return False
            if last:
                self.late_head(m, -1)
            else:
                self.forward(j, m)
        elif last:
            self.late_head(-1, m)
        elif m not in self.down[j]:
            return False
        else:
            self.backward(j, m)
        return True

    def run(self):
        while any(self.lines):
            before = sum(map(len, self.lines))
            for line in self.lines:
                while line and self.act(*line[0]):
                    line.pop(0)
            if sum(map(len, self.lines)) == before:
                raise ValueError("the order comes to a halt")
        return result(self.stages), self.losses


def lockstep(
    blocks,
    weights,
    batches,
    microbatches,
    accumulate,
    optimiser,
    method,
    lag_error=0,
    observe=None,
    trace=None,
    extra_delay=0,
    formats=None,
):
    """Ends undrained: after the tick in which stage 1 forwards the last microbatch. What was not
    yet updated is lost."""
    run = Lockstep(
        blocks,
        weights,
        batches,
        accumulate,
        optimiser,
        method,
        lag_error,
        observe,
        trace,
        extra_delay,
        formats,
    )
    for t in range(microbatches):
        run.tick(t)
    return result(run.stages), run.losses


def keep_once(stage, formats, block, microbatch, xs, before):
    """Keeps the input of a block of a stage of several. A stream that passed through the block
    before unchanged, and was stored there, is not stored again. Returns [(stream, stored stream)]
    of this block."""
    stored = formats.kept(block, microbatch, xs)
    stored = tuple(
        next((kept for stream, kept in before if stream is x), own) for x, own in zip(xs, stored)
    )
    stage.keep(microbatch, stored)
    return list(zip(xs, stored))


def one_stage(
    blocks, weights, batches, microbatches, accumulate, optimiser, method, delay, formats=None
):
    """All blocks in one stage (J = 1), whose backward of a microbatch comes `delay` microbatches
    after its forward: the gradient is late by that, whatever the depth of the network. Block by
    block the rules are those of `lockstep`."""
    backward_weights, invert_weights, keep_all = LOCKSTEP[method]
    formats = formats or Formats()
    stages = make_stages(blocks, weights, optimiser, accumulate)
    losses = []
    for m in range(microbatches):
        images, labels = batches(m)
        xs = (images,)
        with torch.no_grad():
            before = []  # streams of the block before, and what is stored of them
            for j, stage in enumerate(stages[:-1]):
                if keep_all or not stage.block.reversible:
                    before = keep_once(stage, formats, j, m, xs, before)
                else:
                    before = []
                stage.stash[m] = stage.tensors
                xs = stage.block.forward(stage.tensors, xs)
            head = stages[-1]
            keep_once(head, formats, len(stages) - 1, m, xs, before)
            head.stash[m] = head.tensors
            losses.append((m, head.block.loss(head.tensors, xs, labels).item()))
        late = m - delay
        if late < 0:
            continue
        read = [{"latest": s.tensors, "stashed": s.stash.pop(late)} for s in stages]
        xs = head.inputs.pop(late)
        _, dxs, gradients = head.head(xs, batches(late)[1], read[-1][backward_weights])
        head.count(gradients)
        for stage, versions in zip(stages[-2::-1], read[-2::-1]):
            weights_read = versions[backward_weights]
            if late in stage.inputs:
                xs = stage.inputs.pop(late)
                dxs, gradients, stats = stage.recompute(weights_read, xs, dxs)
            elif invert_weights == backward_weights:
                xs, dxs, gradients, stats = stage.invert(weights_read, xs, dxs)
            else:
                with torch.no_grad():
                    xs = stage.block.inverse(versions[invert_weights], xs)
                dxs, gradients, stats = stage.recompute(weights_read, xs, dxs)
            stage.count(gradients)
            stage.move_statistics(stats)
        for stage in stages:
            stage.update_if_due()
    return result(stages), losses


def local(blocks, weights, batches, microbatches, accumulate, optimiser, heads, head_weights):
    """Every block is a stage, and heads[j] its auxiliary head. Returns (final weights, those of the
    heads, losses of the network's head)."""
    stages, others = (
        make_stages(blocks, weights, optimiser, accumulate),
        make_stages(heads, head_weights, optimiser, accumulate),
    )
    losses = []
    for m in range(microbatches):
        images, labels = batches(m)
        xs = (images,)
        for stage, other in zip(stages, others):
            p, q, stats, head_stats = (
                stage.leaves(stage.tensors),
                other.leaves(other.tensors),
                {},
                {},
            )
            ys = stage.block.forward(p, tuple(x.detach() for x in xs), stats)
            loss = other.block.loss(q, ys, labels, head_stats)
            found = torch.autograd.grad(
                loss, [p[n] for n in stage.names] + [q[n] for n in other.names]
            )
            stage.count(dict(zip(stage.names, found)))
            other.count(dict(zip(other.names, found[len(stage.names) :])))
            stage.move_statistics(stats)
            other.move_statistics(head_stats)
            xs = ys
        loss, _, gradients = stages[-1].head(xs, labels)
        losses.append((m, loss))
        stages[-1].count(gradients)
        for stage in stages + others:
            stage.update_if_due()
    return result(stages), result(others), losses


class ForwardLocked(Lockstep):
    """One run of a method whose forward passes are locked to each other: `tick` is a round.
    `microbatches`: how many there are, if the rounds go on after the last of them."""

    def tick(self, t, microbatches=None):
        above = len(self.stages) - 1  # stages above the first one
        more = microbatches is None or t < microbatches
        for j in range(above if more else 0):
            self.forward(j, t)
        # From the first stage up: what a stage finds in this round is then not yet there for the
        # one below.
        for j in range(above):
            m = t - (above - j) - self.lag_error
            if m >= 0 and (microbatches is None or m < microbatches):
                self.backward(j, m)
        if more:
            # Its forward and its backward are two actions, so that its input is stored.
            self.late_head(t, t)
        for stage in self.stages:
            stage.update_if_due()


class LateGraphs(ForwardLocked):
    """PACI: a stage keeps the graph of its forward, and its backward goes through this graph with
    the weights of the moment. The tensors of a graph are its own; before the backward they receive
    the latest values, which automatic differentiation then reads in place of those of the forward.
    For networks without ReLU, whose sign it would take from the forward."""

    def forward(self, j, m):
        stage = self.stages[j]
        xs = (self.batches(m)[0],) if j == 0 else self.up[j].pop(m)
        self.note("F", j, m)
        p = {n: t.clone().requires_grad_() for n, t in stage.tensors.items()}
        xs = tuple(x.detach().requires_grad_(x.is_floating_point()) for x in xs)
        ys = stage.block.forward(p, xs, {})
        stage.keep(m, (p, xs, ys))
        self.up[j + 1][m] = tuple(y.detach() for y in ys)

    def backward(self, j, m):
        stage = self.stages[j]
        _, dys = self.down[j].pop(m)
        p, xs, ys = stage.inputs.pop(m)
        for name in stage.names:
            p[name].data.copy_(stage.tensors[name])
        wanted = tuple(x for x in xs if x.requires_grad)
        gradients = torch.autograd.grad(ys, wanted + tuple(p[n] for n in stage.names), dys)
        if j > 0:
            self.down[j - 1][m] = (None, gradients[: len(wanted)])
        self.finish(j, m, dict(zip(stage.names, gradients[len(wanted) :])), {})


def late_graphs(blocks, weights, batches, microbatches, accumulate, optimiser, method):
    """Ends drained: when every microbatch has come back."""
    run = LateGraphs(blocks, weights, batches, accumulate, optimiser, method)
    for t in range(microbatches + len(blocks)):
        run.tick(t, microbatches)
    return result(run.stages), run.losses


def forward_locked(
    blocks,
    weights,
    batches,
    microbatches,
    accumulate,
    optimiser,
    method,
    lag_error=0,
    observe=None,
    trace=None,
    formats=None,
):
    """Ends undrained: with the round of the last microbatch. What was not yet updated is lost."""
    run = ForwardLocked(
        blocks,
        weights,
        batches,
        accumulate,
        optimiser,
        method,
        lag_error,
        observe,
        trace,
        formats=formats,
    )
    for t in range(microbatches):
        run.tick(t)
    return result(run.stages), run.losses


def train(
    blocks,
    weights,
    batches,
    microbatches,
    accumulate,
    optimiser,
    method,
    lag_error=0,
    observe=None,
    extra_delay=0,
    stages=0,
    order=None,
    formats=None,
):
    """`stages`: 1 puts all blocks in one stage, with `extra_delay` alone as its delay; else one
    block a stage. `formats`: of messages and kept inputs, a formats.Formats; a method that keeps
    graphs is then run with inputs in their place."""
    if extra_delay and method not in LOCKSTEP:
        raise ValueError(f"--extra-delay: not written for {method}")
    if order:
        return Ordered(
            order,
            blocks,
            weights,
            batches,
            accumulate,
            optimiser,
            method,
            0,
            observe,
            None,
            0,
            formats,
        ).run()
    if stages == 1:
        return one_stage(
            blocks,
            weights,
            batches,
            microbatches,
            accumulate,
            optimiser,
            method,
            extra_delay,
            formats,
        )
    if method in LATE_GRAPHS:
        return late_graphs(blocks, weights, batches, microbatches, accumulate, optimiser, method)
    if method in FORWARD_LOCKED:
        return forward_locked(
            blocks,
            weights,
            batches,
            microbatches,
            accumulate,
            optimiser,
            method,
            lag_error,
            observe,
            None,
            formats,
        )
    if method in LOCKSTEP:
        return lockstep(
            blocks,
            weights,
            batches,
            microbatches,
            accumulate,
            optimiser,
            method,
            lag_error,
            observe,
            extra_delay=extra_delay,
            formats=formats,
        )
    if formats:
        raise ValueError(f"formats: not written for {method}")
    if method in LATE_GRAPHS:
        return late_graphs(blocks, weights, batches, microbatches, accumulate, optimiser, method)
    if lag_error:
        raise ValueError(f"--lag-error has no meaning for {method}")
    return sequential(
        blocks, weights, batches, microbatches, accumulate, optimiser, method, observe
    )
