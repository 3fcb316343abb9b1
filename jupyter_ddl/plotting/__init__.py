"""Plots for authors: one description of a chart, drawn as Vega-Lite and as SVG."""
