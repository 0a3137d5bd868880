"""The template, style and script of the HTML report, as package data."""
