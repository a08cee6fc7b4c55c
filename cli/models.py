"""Verbs about models: register, link, versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import gallery_argument, open_gallery, verb, version_settings

if TYPE_CHECKING:
    from click import Command

    from compatstore.cli.version_settings import VersionSettings
    from compatstore.storage.records import ArtifactRecord
    from compatstore.upgrade.status import VersionStatus


@dataclass(frozen=True)
class RegisteredModels:
    """What a gallery knows of models.

    Attributes:
        versions: All embedding versions.
        artifacts: All artifacts linked.
    """

    versions: tuple[VersionStatus, ...]
    artifacts: tuple[ArtifactRecord, ...]


@verb("register", example="register photos.lance v2 --encoder timm:resnet50", settings=version_settings)
@gallery_argument
@click.argument("version")
@pass_output
def register(output: Output, gallery: str, version: str, settings: VersionSettings) -> None:
    """Make an embedding version known.

    Its vectors come with an upgrade.
    """
    opened = open_gallery(gallery, trust_code=False)
    opened.register(settings.version(version))
    output.show(opened.status(), views.status)


@verb("link", example="link photos.lance h.compat --from v1 --to v2")
@gallery_argument
@click.argument("artifact", type=click.Path())
@click.option("--from", "source", metavar="SOURCE", help="Version upgraded from; the artifact's own by default.")
@click.option("--to", "target", metavar="TARGET", help="Version upgraded to; the artifact's own by default.")
@pass_output
def link(output: Output, gallery: str, artifact: str, source: str | None, target: str | None) -> None:
    """Attach an artifact to two versions.

    It is checked first that it is made for them.
    """
    opened = open_gallery(gallery, trust_code=False)
    linked = opened.link(artifact, source, target)
    output.show(next(record for record in opened.artifacts() if record.id == linked), views.linked)


@verb("versions", example="versions photos.lance")
@gallery_argument
@pass_output
def versions(output: Output, gallery: str) -> None:
    """List versions with their models, and artifacts."""
    opened = open_gallery(gallery, trust_code=False)
    output.show(RegisteredModels(opened.status().versions, opened.artifacts()), views.models)


VERBS: tuple[Command, ...] = (register, link, versions)
