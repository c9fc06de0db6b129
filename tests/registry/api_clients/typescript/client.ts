// A deployer's program with openapi-fetch and the types that openapi-typescript made of the registry's document.
//
// The words and the result are those of ../python_client.py.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Schemas = components["schemas"];
type Api = ReturnType<typeof createClient<paths>>;

const sha256 = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

function got<Data>(reply: { data?: Data; error?: Schemas["Problem"] }): Data {
  if (reply.error !== undefined) throw new Error(`${reply.error.code}: ${reply.error.detail}`);
  return reply.data as Data;
}

async function upload(api: Api, name: string, data: Buffer): Promise<Schemas["Manifest"]> {
  const blob = { sha256: sha256(data), size: data.length };
  const { missing } = got(await api.POST("/v1/blobs/missing", { body: { blobs: [blob] } }));
  if (missing.length > 0) {
    const sent = await api.PUT("/v1/blobs/{sha256}", {
      params: { path: { sha256: blob.sha256 } },
      headers: { "Content-Type": "application/octet-stream" },
      body: "",
      bodySerializer: () => data,
    });
    if (got(sent).sha256 !== blob.sha256) throw new Error("another blob");
  }
  return { files: [{ name, ...blob, blobs: [blob] }] };
}

async function publication(api: Api, key: Schemas["Key"], data: Buffer): Promise<Schemas["Publish"]> {
  return { key, manifest: await upload(api, "model.mxr", data), attributes: { num_cu: 120, sramecc: "+", xnack: "-" } };
}

async function download(api: Api, id: string, name: string, header: Record<string, string> = {}) {
  const reply = await api.GET("/v1/artifacts/{id}/files/{name}", {
    params: { path: { id, name }, header },
    parseAs: "stream",
  });
  return { status: reply.response.status, data: Buffer.from(await reply.response.arrayBuffer()) };
}

async function round(api: Api, folder: string) {
  const [onnx, mxr] = ["onnx", "mxr"].map((each) => readFileSync(`${folder}/model.${each}`)) as [Buffer, Buffer];
  const key: Schemas["Key"] = JSON.parse(readFileSync(`${folder}/key.json`, "utf8"));
  const request = { body: { key, constraints: { num_cu: 120, xnack: "-" as const } } };
  const unresolved = (await api.POST("/v1/resolve", request)).error;
  const published = await api.POST("/v1/artifacts", { body: await publication(api, key, mxr) });
  const { id } = got(published);
  got(await api.POST("/v1/artifacts/{id}/promote", { params: { path: { id } } }));
  const { artifact } = got(await api.POST("/v1/resolve", request));

  const [file] = artifact.manifest.files as [Schemas["File"]];
  const part = await download(api, artifact.id, file.name, { Range: "bytes=1000-1999" });
  const same = await download(api, artifact.id, file.name, { "If-None-Match": `"${file.sha256}"` });
  const whole = await download(api, artifact.id, file.name);

  const manifest = await upload(api, "model.onnx", onnx);
  const registration = { body: { name: "model.onnx", onnx: "model.onnx", manifest } };
  const registered = [await api.POST("/v1/models", registration), await api.POST("/v1/models", registration)];

  const asked = await api.POST("/v1/jobs", { body: { key: { ...key, rocm: "7.1" }, require_worker: true } });
  let job = got(asked);
  while (job.state === "queued" || job.state === "running") {
    const query = { wait: 60, version: job.version };
    job = got(await api.GET("/v1/jobs/{id}", { params: { path: { id: job.id }, query } }));
  }
  const log = await api.GET("/v1/jobs/{id}/log", { params: { path: { id: job.id } }, parseAs: "text" });

  const ids: string[] = [];
  let after: string | null | undefined;
  do {
    const page = got(await api.GET("/v1/artifacts", { params: { query: { limit: 1, after: after ?? undefined } } }));
    ids.push(...page.items.map((each) => each.id));
    after = page.next;
  } while (after !== null);
  return {
    registered: registered.map((each) => [each.response.status, got(each).model]),
    unresolved: [unresolved?.status, unresolved?.code],
    published: published.response.status,
    resolved: artifact.id === id,
    part: [part.status, part.data.equals(mxr.subarray(1000, 2000))],
    same: [same.status, same.data.length],
    whole: whole.data.equals(mxr),
    asked: asked.response.status,
    job: [job.state, job.artifact],
    created: Date.parse(job.created_at) / 1000,
    log: log.data,
    ids,
  };
}

function refusal(reply: { error?: Schemas["Problem"]; response: Response }) {
  if (reply.error === undefined) throw new Error("not refused");
  const { code, retry } = reply.error;
  return { status: reply.response.status, code, retry, after: reply.response.headers.get("Retry-After") };
}

async function main(what: string, url: string, ...words: string[]): Promise<unknown> {
  const api = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${process.env.TOKEN}` } });
  const [first] = words as [string];
  if (what === "round") return round(api, first);
  if (what === "publish") {
    const key = JSON.parse(readFileSync(`${first}/key.json`, "utf8"));
    const body = await publication(api, key, readFileSync(`${first}/model.mxr`));
    return refusal(await api.POST("/v1/artifacts", { body }));
  }
  if (what === "ready") return refusal(await api.GET("/readyz"));
  try {
    const reply = await api.GET("/v1/blobs/{sha256}", { params: { path: { sha256: first } }, parseAs: "arrayBuffer" });
    return { sha256: sha256(new Uint8Array(got(reply) as unknown as ArrayBuffer)) };
  } catch (problem) {
    return { broken: String(problem) };
  }
}

const [what, url, ...words] = process.argv.slice(2) as [string, string, ...string[]];
console.log(JSON.stringify(await main(what, url, ...words)));
