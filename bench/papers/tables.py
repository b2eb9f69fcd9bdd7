"""Markdown, and drawings of the same figures."""

import importlib.util

CAN_DRAW = importlib.util.find_spec("matplotlib") is not None


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def with_interval(mean, half):
    return f"{mean:.3f} ± {half:.3f}"


def bars(path, title, unit, groups, values):
    """A group of bars for each of `groups`, in it one for each name of `values`: {name: [a value for each group]}."""
    if not CAN_DRAW:
        return
    plot = _pyplot()
    figure, axes = plot.subplots(figsize=(max(6.0, 0.22 * len(groups) * len(values)), 4.0), layout="constrained")
    width = 0.8 / len(values)
    for number, (name, heights) in enumerate(values.items()):
        axes.bar([group + (number + 0.5) * width - 0.4 for group in range(len(groups))], heights, width, label=name)
    axes.set_xticks(range(len(groups)), groups)
    _finish(plot, figure, axes, path, title, unit)


def lines(path, title, unit, places, values):
    """{name: [(mean, half of the interval) for each place]}, over places that double."""
    if not CAN_DRAW:
        return
    plot = _pyplot()
    figure, axes = plot.subplots(figsize=(6.0, 4.0), layout="constrained")
    for name, points in values.items():
        axes.errorbar(places, [mean for mean, _ in points], [half for _, half in points], marker="o", capsize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{place:g}" for place in places])
    _finish(plot, figure, axes, path, title, unit)


def _pyplot():
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "aerie"  # the same drawing, the same file
    matplotlib.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=matplotlib.colormaps["tab20"].colors)
    from matplotlib import pyplot
    return pyplot


def _finish(plot, figure, axes, path, title, unit):
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    figure.legend(fontsize="small", loc="outside right upper")
    figure.savefig(path, metadata={"Date": None})
    plot.close(figure)
