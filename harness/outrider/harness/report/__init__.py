"""One self-contained HTML page from the results of the latency simulation: reading, arithmetic, charts and page."""
