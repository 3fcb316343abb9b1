# Functions that remember: cache, lru_cache, cached_property, singledispatch, partialmethod.
# result = total
# ddp = -n 2
# search = --grid n=10,20 --metric total
# %%
import functools
from functools import cache, cached_property, lru_cache, partialmethod, singledispatch


@cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@lru_cache(maxsize=8)
def weights(n):
    return tuple(1 / (i + 1) for i in range(n))


@singledispatch
def size_of(value):
    return 1


@size_of.register
def _(value: list):
    return len(value)


@size_of.register(str)
def _(value):
    return 100


class Corpus:
    def __init__(self, n):
        self.n = n

    @cached_property
    def tokens(self):
        return list(range(self.n))

    def head(self, k):
        return self.tokens[:k]

    first_three = partialmethod(head, 3)


corpus = Corpus(5)
fibonacci(10), weights(3), corpus.tokens
# %% train
n = 15
double = functools.partial(lambda factor, x: factor * x, 2)
total = fibonacci(n) + sum(weights(n)) + size_of(corpus.tokens) + size_of("a") + size_of(3)
total += len(corpus.first_three()) + double(n)
