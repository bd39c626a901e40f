"""What evaluations show: win rates with intervals, ratings, the page over all of them."""
