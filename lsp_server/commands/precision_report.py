"""The report of what quantization cost each layer: a table and a plot, for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from engine import MatrixReport, PreparationReport
from lsp_server.commands.output import megabytes, print_table

_BAR = 40  # characters of the longest bar
_LOWEST = 1e-5  # the error at the left end of the plot; the right end is 1


def print_report(report: PreparationReport) -> None:
    """Print table, totals and plot."""
    rows = [("matrix", "format", "size", "weights", "output", "cosine", "moved up from")]
    rows += [_row(matrix) for matrix in report.matrices]
    print_table(rows)
    print()
    print_table([("kind", "formats", "size", "worst error"), *_totals(report.matrices)])
    print()
    for line in plot_lines(report):
        print(line)
    print(
        f"\nerrors are mean squares over the signal's power; outputs are those of "
        f"{report.tokens} tokens of {', '.join(report.files)}"
    )


def _row(matrix: MatrixReport) -> tuple[str, ...]:
    output = "" if matrix.output_error is None else f"{matrix.output_error:.4%}"
    cosine = "" if matrix.cosine is None else f"{matrix.cosine:.5f}"
    moves = "; ".join(f"{format}: {reason}" for format, reason in matrix.moved_from)
    size, error = megabytes(matrix.nbytes), f"{matrix.weight_error:.4%}"
    return matrix.name, matrix.format, size, error, output, cosine, moves


def _totals(matrices: Sequence[MatrixReport]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(matrix.kind for matrix in matrices):
        own = [matrix for matrix in matrices if matrix.kind is kind]
        formats = ", ".join(sorted({matrix.format for matrix in own}))
        size = megabytes(sum(matrix.nbytes for matrix in own))
        rows.append((str(kind), formats, size, f"{max(m.error for m in own):.4%}"))
    return [*rows, ("all", "", megabytes(sum(m.nbytes for m in matrices)), "")]


def _along(error: float) -> float:
    """0..1: where an error lies on the logarithmic axis."""
    return 1 - math.log(max(min(error, 1.0), _LOWEST)) / math.log(_LOWEST)


def plot_lines(report: PreparationReport) -> list[str]:
    """A bar a matrix, on a logarithmic axis from 0.001 % to 100 %, the limit marked by a bar."""
    width = max(len(matrix.name) for matrix in report.matrices)
    limit = round(_along(report.limit) * _BAR)
    lines = [f"{'error':{width}}  0.001% {'.' * (_BAR - 13)} 100%"]
    for matrix in report.matrices:
        bar = "█" * round(_along(matrix.error) * _BAR)
        bar = bar.ljust(_BAR)
        if bar[limit] == " ":
            bar = f"{bar[:limit]}│{bar[limit + 1 :]}"
        lines.append(f"{matrix.name:{width}}  {bar.rstrip()} {matrix.error:.3%}")
    return lines


def plot_svg(report: PreparationReport) -> str:
    """The same plot as an SVG picture."""
    height, left, width, bottom = 14, 170, 520, 30
    total = height * len(report.matrices)
    colors = {"attention": "#4477aa", "mlp": "#ccbb44", "head": "#aa3377", "embed": "#228833"}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" '
        f'height="{total + bottom}" font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for exponent in range(-5, 1):
        x = left + _along(10.0**exponent) * width
        parts.append(
            f'<line x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{total}" stroke="#dddddd"/>'
            f'<text x="{x:.0f}" y="{total + 14}" text-anchor="middle">{10.0**exponent:g}</text>'
        )
    for number, matrix in enumerate(report.matrices):
        y, length = number * height, _along(matrix.error) * width
        parts.append(
            f'<text x="{left - 6}" y="{y + 10}" text-anchor="end">{escape(matrix.name)}</text>'
            f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{height - 4}" '
            f'fill="{colors[matrix.kind]}"/>'
            f'<text x="{left + length + 4:.1f}" y="{y + 10}">{matrix.error:.2e} '
            f"{escape(matrix.format)}</text>"
        )
    x = left + _along(report.limit) * width
    parts.append(
        f'<line x1="{x:.0f}" y1="0" x2="{x:.0f}" y2="{total}" stroke="#cc3311" '
        'stroke-dasharray="4 3"/>'
        f'<text x="{left}" y="{total + 27}">relative error; the dashed line is the limit</text>'
        "</svg>"
    )
    return "\n".join(parts)
