"""What rater itself costs, as ratios against rivals in the same run: `make bench`."""
