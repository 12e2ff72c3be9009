package api

import _ "embed"

// OpenAPI describes every call, as it is served at OpenAPIPath.
//
//go:embed openapi.yaml
var OpenAPI []byte
