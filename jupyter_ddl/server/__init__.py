"""The Jupyter server extension: a relay between the browser and this user's controllers."""
