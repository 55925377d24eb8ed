"""The pose graph, its optimizer, and g2o export."""
