from compatstore import encoders as encoders
from compatstore import errors as errors
from compatstore import evaluation as evaluation
from compatstore.artifacts import Artifact as Artifact
from compatstore.artifacts import Transformed as Transformed
from compatstore.derivation import Derivation as Derivation
from compatstore.devices.export import export as export
from compatstore.errors import CompatStoreError as CompatStoreError
from compatstore.gallery import Gallery as Gallery
from compatstore.in_memory.nearest import ExactNeighbours as ExactNeighbours
from compatstore.in_memory.nearest import nearest_neighbours as nearest_neighbours
from compatstore.notebook import ShowProgress as ShowProgress
from compatstore.search.cache import Cache as Cache
from compatstore.search.cache import Nearest as Nearest
from compatstore.search.cached_reading import CacheSize as CacheSize
from compatstore.shards import Shards as Shards
from compatstore.storage.records import SearchSettings as SearchSettings
from compatstore.trainers.pairs.learn import Learn as Learn
from compatstore.upgrade.requests.backfill import Backfill as Backfill
from compatstore.upgrade.requests.cascade import Cascade as Cascade
from compatstore.upgrade.requests.details import Details as Details
from compatstore.upgrade.requests.gates import Gates as Gates
from compatstore.upgrade.requests.queries import Queries as Queries
from compatstore.upgrade.requests.run_settings import RunSettings as RunSettings
from compatstore.versions import EmbeddingVersion as EmbeddingVersion
from compatstore.versions import HeadLoss as HeadLoss

__version__: str
