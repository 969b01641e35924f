"""Bars of Invar's speed over the best peer's, as an SVG."""
from html import escape

WIDTH, LEFT, ROW = 760, 250, 18


def draw(path, bars):
    """bars: (model, measure, ratio, name of the peer)."""
    right = max(2.0, max((ratio for _, _, ratio, _ in bars), default=0) * 1.05)
    x = lambda ratio: LEFT + ratio / right * (WIDTH - LEFT - 130)
    height = ROW * len(bars) + 50
    rows = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="16" font-weight="bold">tokens/s of Invar over those of the best peer</text>']
    for i, (model, measure, ratio, peer) in enumerate(bars):
        y = 28 + i * ROW
        rows.append(f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(model)}, {escape(measure)}</text>'
                    f'<rect x="{LEFT}" y="{y}" width="{x(ratio) - LEFT:.1f}" height="{ROW - 4}" fill="{"#247" if ratio >= 1 else "#c33"}"/>'
                    f'<text x="{x(ratio) + 4:.1f}" y="{y + 11}">{ratio:.2f} ({escape(peer)})</text>')
    rows.append(f'<line x1="{x(1):.1f}" x2="{x(1):.1f}" y1="24" y2="{height - 20}" stroke="#333" stroke-dasharray="3"/></svg>')
    with open(path, "w") as file:
        file.write("\n".join(rows) + "\n")
