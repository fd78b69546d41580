"""What a builder answers over HTTP: manifests, bundles, requests, reports, health, figures."""
