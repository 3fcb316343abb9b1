"""What crosses a process boundary: specs, events, requests, replies, framing."""
