"""Retrieval: one interface, ``search(queries, k)``, over BM25, Lucene, dense vectors and servers.

==========  ========================================================================================================
``bm25``    In this process, memory-mapped (:mod:`~llm_envs.tools.retrieval.bm25`)
``lucene``  Lucene through Anserini (:mod:`~llm_envs.tools.retrieval.lucene`)
``dense``   sentence-transformers, exact (:mod:`~llm_envs.tools.retrieval.dense`)
``http``    A server in Search-R1's wire format (:mod:`~llm_envs.tools.retrieval.http`)
==========  ========================================================================================================

A failure is a :class:`RetrieverError`. Nothing here ever makes a result up.

>>> from llm_envs.tools.retrieval.bm25 import BM25Retriever
>>> whale = Passage("p1", "Blue whale", "The blue whale is the largest animal.")
>>> cat = Passage("p2", "Cat", "The cat is a small animal.")
>>> [
...     [passage.title for passage in result]
...     for result in BM25Retriever.from_passages([whale, cat]).search(["whales"], 3)
... ]
[['Blue whale']]
"""

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.cache import CachedRetriever
from llm_envs.tools.retrieval.index import build_index, open_index, open_retriever

__all__ = [
    "CachedRetriever",
    "Passage",
    "Retriever",
    "RetrieverError",
    "build_index",
    "open_index",
    "open_retriever",
]
