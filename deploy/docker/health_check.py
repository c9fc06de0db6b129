"""Ends with 0 if the registry in this container answers /readyz.

Its certificate is for the names that clients use, and is not checked.
"""

import os
import ssl
import urllib.request

scheme = "https" if os.environ.get("MXR_SERVE_TLS_CERT") else "http"
url = f"{scheme}://127.0.0.1:{os.environ.get('MXR_SERVE_PORT', '8765')}/readyz"
urllib.request.urlopen(url, timeout=4, context=ssl._create_unverified_context())
