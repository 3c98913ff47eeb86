"""Hashed static names that reach into ES module imports too, or a deploy would serve stale modules."""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class ModuleManifestStorage(CompressedManifestStaticFilesStorage):
    """WhiteNoise's manifest storage, rewriting `import` lines as well.

    Names that are not in the manifest fall back to themselves, so a page works before collectstatic ran.
    """

    support_js_module_import_aggregation = True
    # Our own modules only: packages ship files that import names which they do not ship.
    _js_module_import_aggregation_patterns = (
        "js/*.js",
        CompressedManifestStaticFilesStorage._js_module_import_aggregation_patterns[1],
    )
    manifest_strict = False
    # A chain of imports may need one pass for each of its links; the usual five are fewer than ours has.
    max_post_process_passes = 12
