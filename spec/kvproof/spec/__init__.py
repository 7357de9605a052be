"""The specification: one text, run natively, searched exhaustively and proved for every size."""
