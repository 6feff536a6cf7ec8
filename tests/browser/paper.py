"""A printed page as pixels, drawn by another program than the one that printed it."""

import numpy as np
import pypdfium2
from numpy.typing import NDArray


def drawn(pdf: bytes) -> list[NDArray[np.uint8]]:
    """Each sheet as grey pixels of shape (height, width), 50 dots to the inch."""
    document = pypdfium2.PdfDocument(pdf)
    try:
        return [np.asarray(sheet.render(scale=50 / 72).to_pil().convert("L")) for sheet in document]
    finally:
        document.close()


def dark_paper(sheets: list[NDArray[np.uint8]]) -> list[str]:
    """Sheets whose edge or greater part is not (nearly) white."""
    found = []
    for number, sheet in enumerate(sheets, 1):
        edge = np.concatenate([sheet[[0, -1]].ravel(), sheet[:, [0, -1]].ravel()])
        white, level = float(np.mean(sheet > 230)), int(np.median(edge))
        if level < 230 or white < 0.5:
            found.append(f"sheet {number} is dark: edge {level} of 255, {white:.0%} white")
    return found
