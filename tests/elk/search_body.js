// Reads KQL texts (a JSON list) and writes the search bodies that Kibana would send for them.
//
// node search_body.js PACKAGE < texts.json; PACKAGE: folder of the query language's own library.
const {fromKueryExpression, toElasticsearchQuery} = require(process.argv[2]);
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => toElasticsearchQuery(fromKueryExpression(text)))));
