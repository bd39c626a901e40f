"""One evaluation for all workloads: who plays whom, the rows of what was played, what is counted, the page."""
