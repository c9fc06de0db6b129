// Without a validator: nothing is sent to another host.
SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  domNode: document.getElementById("api"),
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  validatorUrl: null,
});
